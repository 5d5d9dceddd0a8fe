"""tinyworld: correct sentences, alignments and heads, and disjoint splits.

The sentences below were written manually. The grammar must generate exactly these.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.data.builtin.tinyworld import CONSTRUCTIONS, DIRECTIONS, SPLITS, AlignedPair, tinyworld
from cutaway.data.builtin.tinyworld.choices import combinations
from cutaway.data.builtin.tinyworld.derive import derive, sentence
from cutaway.data.builtin.tinyworld.grammar import default_world, is_withheld
from cutaway.data.builtin.tinyworld.meaning import Clause, ObjectPronoun, RelativePronoun

WORLD = default_world()


def c(rule: str, mood: str = "", **slots: Any) -> Clause:
    return derive(WORLD, rule, mood, **slots)


def text_of(derivation: Clause, language: str) -> str:
    return WORLD.say(sentence(WORLD, derivation), language).text


def np(text: str) -> Any:
    return c("quality", subject=text, quality="old").slots["subject"]


# Each row: a derivation, and the sentence in English, French and German.
SENTENCES = [
    # Simple sentences: agreement of the verb with the subject
    (c("intransitive", subject="the cat", verb="sleep"), "The cat sleeps.", "Le chat dort.", "Die Katze schläft."),
    (c("intransitive", subject="I", verb="wait"), "I wait.", "J'attends.", "Ich warte."),
    (c("intransitive", subject="you", verb="work"), "You work.", "Tu travailles.", "Du arbeitest."),
    (c("intransitive", subject="he", verb="run"), "He runs.", "Il court.", "Er rennt."),
    (c("intransitive", subject="she", verb="fly"), "She flies.", "Elle vole.", "Sie fliegt."),
    (c("intransitive", subject="we", verb="swim"), "We swim.", "Nous nageons.", "Wir schwimmen."),
    (c("intransitive", subject="they", verb="laugh"), "They laugh.", "Ils rient.", "Sie lachen."),
    (c("intransitive", subject="you", verb="dance"), "You dance.", "Tu danses.", "Du tanzt."),
    (c("intransitive", subject="every child", verb="cry"), "Every child cries.", "Chaque enfant pleure.",
     "Jedes Kind weint."),
    (c("intransitive", subject="Anna", verb="travel"), "Anna travels.", "Anna voyage.", "Anna reist."),
    # Articles, elision, h
    (c("intransitive", subject="the man", verb="sing"), "The man sings.", "L'homme chante.", "Der Mann singt."),
    (c("intransitive", subject="the owl", verb="sleep"), "The owl sleeps.", "Le hibou dort.", "Die Eule schläft."),
    (c("intransitive", subject="the hedgehogs", verb="sleep"), "The hedgehogs sleep.", "Les hérissons dorment.",
     "Die Igel schlafen."),
    (c("intransitive", subject="this elephant", verb="dance"), "This elephant dances.", "Cet éléphant danse.",
     "Dieser Elefant tanzt."),
    (c("intransitive", subject="these birds", verb="sing"), "These birds sing.", "Ces oiseaux chantent.",
     "Diese Vögel singen."),
    (c("intransitive", subject="two horses", verb="run"), "Two horses run.", "Deux chevaux courent.",
     "Zwei Pferde rennen."),
    (c("intransitive", subject="many owls", verb="fly"), "Many owls fly.", "Beaucoup de hiboux volent.",
     "Viele Eulen fliegen."),
    (c("intransitive", subject="many children", verb="laugh"), "Many children laugh.", "Beaucoup d'enfants rient.",
     "Viele Kinder lachen."),
    (c("intransitive", subject="some women", verb="work"), "Some women work.", "Quelques femmes travaillent.",
     "Einige Frauen arbeiten."),
    # Adjectives: gender, number, position, vowels
    (c("intransitive", subject="the small cat", verb="sleep"), "The small cat sleeps.", "Le petit chat dort.",
     "Die kleine Katze schläft."),
    (c("intransitive", subject="a black cat", verb="sleep"), "A black cat sleeps.", "Un chat noir dort.",
     "Eine schwarze Katze schläft."),
    (c("intransitive", subject="a white cow", verb="sleep"), "A white cow sleeps.", "Une vache blanche dort.",
     "Eine weiße Kuh schläft."),
    (c("intransitive", subject="an old elephant", verb="sleep"), "An old elephant sleeps.", "Un vieil éléphant dort.",
     "Ein alter Elefant schläft."),
    (c("intransitive", subject="a beautiful bird", verb="sing"), "A beautiful bird sings.", "Un bel oiseau chante.",
     "Ein schöner Vogel singt."),
    (c("intransitive", subject="the beautiful birds", verb="sing"), "The beautiful birds sing.",
     "Les beaux oiseaux chantent.", "Die schönen Vögel singen."),
    (c("intransitive", subject="the lazy princesses", verb="wait"), "The lazy princesses wait.",
     "Les princesses paresseuses attendent.", "Die faulen Prinzessinnen warten."),
    (c("intransitive", subject="my kind aunt", verb="laugh"), "My kind aunt laughs.", "Ma gentille tante rit.",
     "Meine freundliche Tante lacht."),
    (c("intransitive", subject="my brave uncle", verb="arrive"), "My brave uncle arrives.", "Mon oncle courageux arrive.",
     "Mein mutiger Onkel kommt an."),
    (c("intransitive", subject="this happy girl", verb="sing"), "This happy girl sings.", "Cette fille heureuse chante.",
     "Dieses glückliche Mädchen singt."),
    (c("intransitive", subject="a tired child", verb="cry"), "A tired child cries.", "Un enfant fatigué pleure.",
     "Ein müdes Kind weint."),
    (c("intransitive", subject="three young foxes", verb="play"), "Three young foxes play.", "Trois jeunes renards jouent.",
     "Drei junge Füchse spielen."),
    # Transitive: accusative, weak nouns, indefinite and partitive articles
    (c("transitive", subject="the dog", verb="see", object="a tree"), "The dog sees a tree.", "Le chien voit un arbre.",
     "Der Hund sieht einen Baum."),
    (c("transitive", subject="the girl", verb="help", object="the boy"), "The girl helps the boy.",
     "La fille aide le garçon.", "Das Mädchen hilft dem Jungen."),
    (c("transitive", subject="the queen", verb="meet", object="a prince"), "The queen meets a prince.",
     "La reine rencontre un prince.", "Die Königin trifft einen Prinzen."),
    (c("transitive", subject="I", verb="open", object="the window"), "I open the window.", "J'ouvre la fenêtre.",
     "Ich öffne das Fenster."),
    (c("transitive", subject="we", verb="eat", object="the orange"), "We eat the orange.", "Nous mangeons l'orange.",
     "Wir essen die Orange."),
    (c("transitive", subject="you", verb="buy", object="my old bicycle"), "You buy my old bicycle.",
     "Tu achètes mon vieux vélo.", "Du kaufst mein altes Fahrrad."),
    (c("transitive", subject="she", verb="wear", object="her red scarf"), "She wears her red scarf.",
     "Elle porte son écharpe rouge.", "Sie trägt ihren roten Schal."),
    (c("transitive", subject="he", verb="lose", object="his new hat"), "He loses his new hat.",
     "Il perd son nouveau chapeau.", "Er verliert seinen neuen Hut."),
    (c("transitive", subject="the fox", verb="follow", object="the small rabbits"), "The fox follows the small rabbits.",
     "Le renard suit les petits lapins.", "Der Fuchs folgt den kleinen Kaninchen."),
    (c("transitive", subject="they", verb="look for", object="their keys"), "They look for their keys.",
     "Ils cherchent leurs clés.", "Sie suchen ihre Schlüssel."),
    (c("transitive", subject="the painter", verb="take", object="twelve eggs"), "The painter takes twelve eggs.",
     "Le peintre prend douze œufs.", "Der Maler nimmt zwölf Eier."),
    (c("food", subject="the bear", verb="eat", object="honey"), "The bear eats honey.", "L'ours mange du miel.",
     "Der Bär isst Honig."),
    (c("food", subject="I", verb="drink", object="cold water"), "I drink cold water.", "Je bois de l'eau froide.",
     "Ich trinke kaltes Wasser."),
    (c("food", subject="the baker", verb="prepare", object="good soup"), "The baker prepares good soup.",
     "Le boulanger prépare de la bonne soupe.", "Der Bäcker bereitet gute Suppe zu."),
    (c("food", subject="the monkey", verb="eat", object="ripe cherries"), "The monkey eats ripe cherries.",
     "Le singe mange des cerises mûres.", "Der Affe isst reife Kirschen."),
    (c("food", subject="we", verb="prepare", object="good cakes"), "We prepare good cakes.",
     "Nous préparons de bons gâteaux.", "Wir bereiten gute Kuchen zu."),
    # Giving: to, à, dative
    (c("giving", subject="the king", verb="give", object="a ring", recipient="the queen"),
     "The king gives a ring to the queen.", "Le roi donne une bague à la reine.", "Der König gibt der Königin einen Ring."),
    (c("giving", subject="Tom", verb="show", object="his book", recipient="the children"),
     "Tom shows his book to the children.", "Tom montre son livre aux enfants.", "Tom zeigt den Kindern sein Buch."),
    (c("giving", subject="I", verb="send", object="the long letter", recipient="the doctor"),
     "I send the long letter to the doctor.", "J'envoie la longue lettre au médecin.",
     "Ich schicke dem Arzt den langen Brief."),
    (c("giving", subject="we", verb="bring", object="the soup", recipient="the man"), "We bring the soup to the man.",
     "Nous apportons la soupe à l'homme.", "Wir bringen dem Mann die Suppe."),
    (c("benefit", subject="my mother", verb="buy", object="a dress", friend="my sister"),
     "My mother buys a dress for my sister.", "Ma mère achète une robe pour ma sœur.",
     "Meine Mutter kauft ein Kleid für meine Schwester."),
    (c("benefit", subject="she", verb="draw", object="a lion", friend="the old teacher"),
     "She draws a lion for the old teacher.", "Elle dessine un lion pour le vieux professeur.",
     "Sie zeichnet einen Löwen für den alten Lehrer."),
    # Places: prepositions of each noun; contraction
    (c("activity", subject="the boy", verb="play", place="in the garden"), "The boy plays in the garden.",
     "Le garçon joue dans le jardin.", "Der Junge spielt im Garten."),
    (c("activity", subject="the farmer", verb="work", place="at the market"), "The farmer works at the market.",
     "Le fermier travaille au marché.", "Der Bauer arbeitet auf dem Markt."),
    (c("activity", subject="we", verb="wait", place="at the station"), "We wait at the station.",
     "Nous attendons à la gare.", "Wir warten am Bahnhof."),
    (c("activity", subject="she", verb="sleep", place="at the hotel"), "She sleeps at the hotel.", "Elle dort à l'hôtel.",
     "Sie schläft im Hotel."),
    (c("activity", subject="they", verb="dance", place="on the beach"), "They dance on the beach.",
     "Ils dansent sur la plage.", "Sie tanzen am Strand."),
    (c("activity", subject="the children", verb="sing", place="at our school"), "The children sing at our school.",
     "Les enfants chantent à notre école.", "Die Kinder singen in unserer Schule."),
    (c("swimming", subject="the duck", verb="swim", place="in the cold lake"), "The duck swims in the cold lake.",
     "Le canard nage dans le lac froid.", "Die Ente schwimmt im kalten See."),
    (c("motion", subject="the king", verb="go", place="to the castle"), "The king goes to the castle.",
     "Le roi va au château.", "Der König geht zum Schloss."),
    (c("motion", subject="I", verb="go", place="to the church"), "I go to the church.", "Je vais à l'église.",
     "Ich gehe zur Kirche."),
    (c("motion", subject="the wolf", verb="run", place="to the dark forest"), "The wolf runs to the dark forest.",
     "Le loup court dans la forêt sombre.", "Der Wolf rennt in den dunklen Wald."),
    (c("motion", subject="the giant", verb="return", place="to his village"), "The giant returns to his village.",
     "Le géant retourne à son village.", "Der Riese kehrt in sein Dorf zurück."),
    (c("motion", subject="you", verb="come", place="to the museum"), "You come to the museum.", "Tu viens au musée.",
     "Du kommst ins Museum."),
    (c("location", subject="my sisters", place="in the kitchen"), "My sisters are in the kitchen.",
     "Mes sœurs sont dans la cuisine.", "Meine Schwestern sind in der Küche."),
    (c("spot", subject="the cup", spot="on the table"), "The cup is on the table.", "La tasse est sur la table.",
     "Die Tasse ist auf dem Tisch."),
    (c("spot", subject="your shoes", spot="under my bed"), "Your shoes are under my bed.",
     "Tes chaussures sont sous mon lit.", "Deine Schuhe sind unter meinem Bett."),
    (c("spot", subject="the dog", spot="in front of the house"), "The dog is in front of the house.",
     "Le chien est devant la maison.", "Der Hund ist vor dem Haus."),
    (c("spot", subject="the key", spot="behind these old doors"), "The key is behind these old doors.",
     "La clé est derrière ces vieilles portes.", "Der Schlüssel ist hinter diesen alten Türen."),
    (c("company", subject="the prince", verb="dance", companion="the witches"), "The prince dances with the witches.",
     "Le prince danse avec les sorcières.", "Der Prinz tanzt mit den Hexen."),
    (c("company", subject="she", verb="play", companion="her young bears"), "She plays with her young bears.",
     "Elle joue avec ses jeunes ours.", "Sie spielt mit ihren jungen Bären."),
    (c("there is", thing="a frog", place="in the kitchen"), "There is a frog in the kitchen.",
     "Il y a une grenouille dans la cuisine.", "In der Küche ist ein Frosch."),
    (c("there is", thing="four young wolves", place="in the park"), "There are four young wolves in the park.",
     "Il y a quatre jeunes loups dans le parc.", "Im Park sind vier junge Wölfe."),
    # be and have
    (c("quality", subject="the soup", quality="hot"), "The soup is hot.", "La soupe est chaude.", "Die Suppe ist heiß."),
    (c("quality", subject="my sisters", quality="very happy"), "My sisters are very happy.",
     "Mes sœurs sont très heureuses.", "Meine Schwestern sind sehr glücklich."),
    (c("quality", subject="these tables", quality="too heavy"), "These tables are too heavy.",
     "Ces tables sont trop lourdes.", "Diese Tische sind zu schwer."),
    (c("quality", subject="the king and the queen", quality="old"), "The king and the queen are old.",
     "Le roi et la reine sont vieux.", "Der König und die Königin sind alt."),
    (c("quality", subject="Anna and Emma", quality="kind"), "Anna and Emma are kind.", "Anna et Emma sont gentilles.",
     "Anna und Emma sind freundlich."),
    (c("comparison", subject="the cat", quality="smaller", other_one="the dog"), "The cat is smaller than the dog.",
     "Le chat est plus petit que le chien.", "Die Katze ist kleiner als der Hund."),
    (c("comparison", subject="the bees", quality="more dangerous", other_one="this elephant"),
     "The bees are more dangerous than this elephant.", "Les abeilles sont plus dangereuses que cet éléphant.",
     "Die Bienen sind gefährlicher als dieser Elefant."),
    (c("comparison", subject="Nina", quality="older", other_one="Anna"), "Nina is older than Anna.",
     "Nina est plus vieille qu'Anna.", "Nina ist älter als Anna."),
    (c("superlative", subject="the oldest tree", place="in the park"), "The oldest tree is in the park.",
     "Le plus vieil arbre est dans le parc.", "Der älteste Baum ist im Park."),
    (c("superlative", subject="the fastest horses", place="on the farm"), "The fastest horses are on the farm.",
     "Les chevaux les plus rapides sont à la ferme.", "Die schnellsten Pferde sind auf dem Bauernhof."),
    (c("superlative", subject="the most famous witch", place="in the tower"), "The most famous witch is in the tower.",
     "La sorcière la plus célèbre est dans la tour.", "Die berühmteste Hexe ist im Turm."),
    (c("having", subject="I", object="a small house"), "I have a small house.", "J'ai une petite maison.",
     "Ich habe ein kleines Haus."),
    (c("having", subject="my uncle", object="two big dogs"), "My uncle has two big dogs.",
     "Mon oncle a deux grands chiens.", "Mein Onkel hat zwei große Hunde."),
    (c("lacking", "not", subject="the boy", object="a hat"), "The boy does not have a hat.",
     "Le garçon n'a pas de chapeau.", "Der Junge hat keinen Hut."),
    (c("lacking", "past not", subject="I", object="a clock"), "I did not have a clock.", "Je n'avais pas d'horloge.",
     "Ich hatte keine Uhr."),
    (c("abstaining", "not", subject="the lion", verb="eat", object="cheese"), "The lion does not eat cheese.",
     "Le lion ne mange pas de fromage.", "Der Löwe isst keinen Käse."),
    (c("abstaining", "not", subject="we", verb="drink", object="water"), "We do not drink water.",
     "Nous ne buvons pas d'eau.", "Wir trinken kein Wasser."),
    (c("feeling", subject="I", feeling="hungry"), "I am hungry.", "J'ai faim.", "Ich habe Hunger."),
    (c("feeling", "past", subject="the children", feeling="afraid"), "The children were afraid.",
     "Les enfants avaient peur.", "Die Kinder hatten Angst."),
    (c("age", subject="the girl", number="six"), "The girl is six years old.", "La fille a six ans.",
     "Das Mädchen ist sechs Jahre alt."),
    (c("age", "not", subject="the tree", number="eleven"), "The tree is not eleven years old.",
     "L'arbre n'a pas onze ans.", "Der Baum ist nicht elf Jahre alt."),
    (c("job", subject="my brother", job="a teacher"), "My brother is a teacher.", "Mon frère est professeur.",
     "Mein Bruder ist Lehrer."),
    (c("this is", thing="my dog"), "This is my dog.", "C'est mon chien.", "Das ist mein Hund."),
    (c("this is", "not", thing="her old car"), "This is not her old car.", "Ce n'est pas sa vieille voiture.",
     "Das ist nicht ihr altes Auto."),
    (c("part", subject="the door", whole="the house", quality="red"), "The door of the house is red.",
     "La porte de la maison est rouge.", "Die Tür des Hauses ist rot."),
    (c("part", subject="the roof", whole="the old castle", quality="green"), "The roof of the old castle is green.",
     "Le toit du vieux château est vert.", "Das Dach des alten Schlosses ist grün."),
    (c("part", subject="the key", whole="our church", quality="very old"), "The key of our church is very old.",
     "La clé de notre église est très vieille.", "Der Schlüssel unserer Kirche ist sehr alt."),
    (c("part", subject="the window", whole="this hotel", quality="very dirty"), "The window of this hotel is very dirty.",
     "La fenêtre de cet hôtel est très sale.", "Das Fenster dieses Hotels ist sehr schmutzig."),
    (c("owner", subject="the dog", owner="the farmer", verb="sleep", place="in the church"),
     "The dog of the farmer sleeps in the church.", "Le chien du fermier dort dans l'église.",
     "Der Hund des Bauern schläft in der Kirche."),
    (c("owner", subject="the cat", owner="the child", verb="wait", place="on the bridge"),
     "The cat of the child waits on the bridge.", "Le chat de l'enfant attend sur le pont.",
     "Die Katze des Kindes wartet auf der Brücke."),
    (c("couple", subject="the fox and the bear", verb="sing", place="in the forest"),
     "The fox and the bear sing in the forest.", "Le renard et l'ours chantent dans la forêt.",
     "Der Fuchs und der Bär singen im Wald."),
    (c("habit", subject="my father", habit="often", verb="work", place="in the garden"),
     "My father often works in the garden.", "Mon père travaille souvent dans le jardin.",
     "Mein Vater arbeitet oft im Garten."),
    (c("habit", subject="we", habit="always", verb="return", place="to the beach"), "We always return to the beach.",
     "Nous retournons toujours à la plage.", "Wir kehren immer zum Strand zurück."),
    (c("manner", subject="the giants", verb="sing", manner="badly"), "The giants sing badly.", "Les géants chantent mal.",
     "Die Riesen singen schlecht."),
    (c("manner", "not", subject="I", verb="sleep", manner="well"), "I do not sleep well.", "Je ne dors pas bien.",
     "Ich schlafe nicht gut."),
    (c("music", subject="Clara", verb="play", instrument="the piano"), "Clara plays the piano.", "Clara joue du piano.",
     "Clara spielt Klavier."),
    (c("music", "want", subject="the owl", verb="play", instrument="the guitar"), "The owl wants to play the guitar.",
     "Le hibou veut jouer de la guitare.", "Die Eule will Gitarre spielen."),
    (c("weather", verb="rain"), "It rains.", "Il pleut.", "Es regnet."),
    (c("weather", "future not", verb="snow"), "It will not snow.", "Il ne neigera pas.", "Es wird nicht schneien."),
    (c("temperature", "past", quality="cold"), "It was cold.", "Il faisait froid.", "Es war kalt."),
    # Object pronouns
    (c("pronoun object", subject="the witch", verb="see", object="him"), "The witch sees him.", "La sorcière le voit.",
     "Die Hexe sieht ihn."),
    (c("pronoun object", subject="I", verb="hear", object="her"), "I hear her.", "Je l'entends.", "Ich höre sie."),
    (c("pronoun object", "not", subject="they", verb="help", object="us"), "They do not help us.",
     "Ils ne nous aident pas.", "Sie helfen uns nicht."),
    (c("pronoun object", "past", subject="Tom", verb="follow", object="her"), "Tom followed her.", "Tom l'a suivie.",
     "Tom ist ihr gefolgt."),
    (c("pronoun object", "past not", subject="we", verb="find", object="them"), "We did not find them.",
     "Nous ne les avons pas trouvés.", "Wir haben sie nicht gefunden."),
    (c("pronoun object", "want not", subject="she", verb="meet", object="you"), "She does not want to meet you.",
     "Elle ne veut pas te rencontrer.", "Sie will dich nicht treffen."),
    (c("pronoun object", "future", subject="the doctor", verb="thank", object="me"), "The doctor will thank me.",
     "Le médecin me remerciera.", "Der Arzt wird mir danken."),
    # Negation, tenses, modals
    (c("intransitive", "not", subject="the small cat", verb="sleep"), "The small cat does not sleep.",
     "Le petit chat ne dort pas.", "Die kleine Katze schläft nicht."),
    (c("transitive", "not", subject="we", verb="open", object="the box"), "We do not open the box.",
     "Nous n'ouvrons pas la boîte.", "Wir öffnen die Kiste nicht."),
    (c("motion", "not", subject="he", verb="go", place="to the school"), "He does not go to the school.",
     "Il ne va pas à l'école.", "Er geht nicht zur Schule."),
    (c("quality", "not", subject="the bread", quality="fresh"), "The bread is not fresh.", "Le pain n'est pas frais.",
     "Das Brot ist nicht frisch."),
    (c("activity", "never", subject="the king", verb="work", place="in the kitchen"),
     "The king never works in the kitchen.", "Le roi ne travaille jamais dans la cuisine.",
     "Der König arbeitet nie in der Küche."),
    (c("transitive", "past", subject="the mouse", verb="eat", object="the cheese"), "The mouse ate the cheese.",
     "La souris a mangé le fromage.", "Die Maus hat den Käse gegessen."),
    (c("motion", "past", subject="the women", verb="go", place="to the market"), "The women went to the market.",
     "Les femmes sont allées au marché.", "Die Frauen sind zum Markt gegangen."),
    (c("intransitive", "past", subject="my aunt", verb="arrive"), "My aunt arrived.", "Ma tante est arrivée.",
     "Meine Tante ist angekommen."),
    (c("transitive", "past not", subject="I", verb="write", object="this letter"), "I did not write this letter.",
     "Je n'ai pas écrit cette lettre.", "Ich habe diesen Brief nicht geschrieben."),
    (c("transitive", "future", subject="the farmer", verb="buy", object="a white horse"),
     "The farmer will buy a white horse.", "Le fermier achètera un cheval blanc.",
     "Der Bauer wird ein weißes Pferd kaufen."),
    (c("quality", "future", subject="the apples", quality="ripe"), "The apples will be ripe.", "Les pommes seront mûres.",
     "Die Äpfel werden reif sein."),
    (c("swimming", "can", subject="the dog", verb="swim", place="in the river"), "The dog can swim in the river.",
     "Le chien peut nager dans la rivière.", "Der Hund kann im Fluss schwimmen."),
    (c("transitive", "must", subject="you", verb="clean", object="the windows"), "You must clean the windows.",
     "Tu dois nettoyer les fenêtres.", "Du musst die Fenster putzen."),
    (c("intransitive", "can not", subject="the cow", verb="fly"), "The cow cannot fly.", "La vache ne peut pas voler.",
     "Die Kuh kann nicht fliegen."),
    (c("motion", "past want", subject="the dragon", verb="return", place="to the castle"),
     "The dragon wanted to return to the castle.", "Le dragon voulait retourner au château.",
     "Der Drache wollte zum Schloss zurückkehren."),
    (c("transitive", "past must", subject="we", verb="repair", object="the boat"), "We had to repair the boat.",
     "Nous devions réparer le bateau.", "Wir mussten das Boot reparieren."),
    (c("activity", "like", subject="the cat", verb="sleep", place="in the house"), "The cat likes to sleep in the house.",
     "Le chat aime dormir dans la maison.", "Die Katze schläft gern im Haus."),
    (c("food", "like", subject="I", verb="drink", object="hot tea"), "I like to drink hot tea.",
     "J'aime boire du thé chaud.", "Ich trinke gern heißen Tee."),
    # Questions
    (c("question", clause=c("intransitive", subject="the cat", verb="sleep")), "Does the cat sleep?",
     "Est-ce que le chat dort?", "Schläft die Katze?"),
    (c("question", clause=c("quality", subject="he", quality="tired")), "Is he tired?", "Est-ce qu'il est fatigué?",
     "Ist er müde?"),
    (c("past question", clause=c("transitive", "past", subject="they", verb="find", object="the ring")),
     "Did they find the ring?", "Est-ce qu'ils ont trouvé la bague?", "Haben sie den Ring gefunden?"),
    (c("modal question", clause=c("intransitive", "can", subject="the elephant", verb="dance")),
     "Can the elephant dance?", "Est-ce que l'éléphant peut danser?", "Kann der Elefant tanzen?"),
    (c("modal question", clause=c("intransitive", "want", subject="you", verb="play")), "Do you want to play?",
     "Est-ce que tu veux jouer?", "Willst du spielen?"),
    (c("why", clause=c("intransitive", subject="the child", verb="cry")),
     "Why does the child cry?", "Pourquoi est-ce que l'enfant pleure?", "Warum weint das Kind?"),
    (c("where", subject="my shoes"), "Where are my shoes?", "Où sont mes chaussures?", "Wo sind meine Schuhe?"),
    (c("who", clause=c("food", subject="who", verb="eat", object="honey")), "Who eats honey?", "Qui mange du miel?",
     "Wer isst Honig?"),
    (c("object question", clause=c("transitive", subject="the girl", verb="eat", object="what")),
     "What does the girl eat?", "Qu'est-ce que la fille mange?", "Was isst das Mädchen?"),
    (c("object question", clause=c("transitive", subject="the dog", verb="follow", object="who")),
     "Who does the dog follow?", "Qui est-ce que le chien suit?", "Wem folgt der Hund?"),
    (c("object question", clause=c("transitive", subject="you", verb="buy", object="which coat")),
     "Which coat do you buy?", "Quel manteau est-ce que tu achètes?", "Welchen Mantel kaufst du?"),
    (c("object question", clause=c("transitive", "past", subject="she", verb="pick", object="how many pears")),
     "How many pears did she pick?", "Combien de poires est-ce qu'elle a cueillies?", "Wie viele Birnen hat sie gepflückt?"),
    # Commands
    (c("command", clause=c("transitive", "command", subject="you", verb="close", object="the door")), "Close the door!",
     "Ferme la porte!", "Schließ die Tür!"),
    (c("command", clause=c("motion", "command", subject="you", verb="go", place="to the kitchen")), "Go to the kitchen!",
     "Va dans la cuisine!", "Geh in die Küche!"),
    (c("command", clause=c("transitive", "command", subject="you", verb="take", object="the apple")), "Take the apple!",
     "Prends la pomme!", "Nimm den Apfel!"),
    (c("command", clause=c("transitive", "command", subject="you", verb="open", object="the box")), "Open the box!",
     "Ouvre la boîte!", "Öffne die Kiste!"),
    (c("command", clause=c("transitive", "command", subject="you", verb="prepare", object="the soup")),
     "Prepare the soup!", "Prépare la soupe!", "Bereite die Suppe zu!"),
    (c("command", clause=c("transitive", "command", subject="you", verb="follow", object="the dog")), "Follow the dog!",
     "Suis le chien!", "Folge dem Hund!"),
    (c("command", clause=c("motion", "command", subject="you", verb="come", place="to the beach")), "Come to the beach!",
     "Viens à la plage!", "Komm zum Strand!"),
    (c("prohibition", clause=c("transitive", "command not", subject="you", verb="eat", object="my cake")),
     "Do not eat my cake!", "Ne mange pas mon gâteau!", "Iss meinen Kuchen nicht!"),
    (c("prohibition", clause=c("activity", "command not", subject="you", verb="sleep", place="at the school")),
     "Do not sleep at the school!", "Ne dors pas à l'école!", "Schlaf nicht in der Schule!"),
    # Time: the German verb is second
    (c("time first", time="every morning", clause=c("food", subject="the princess", verb="drink", object="milk")),
     "Every morning, the princess drinks milk.", "Chaque matin, la princesse boit du lait.",
     "Jeden Morgen trinkt die Prinzessin Milch."),
    (c("time first", time="in winter", clause=c("weather", verb="snow")), "In winter, it snows.", "En hiver, il neige.",
     "Im Winter schneit es."),
    (c("past time", time="yesterday", clause=c("motion", "past", subject="she", verb="come", place="to the farm")),
     "She came to the farm yesterday.", "Hier, elle est venue à la ferme.", "Gestern ist sie zum Bauernhof gekommen."),
    (c("past time", time="last week", clause=c("giving", "past", subject="Max", verb="give", object="the ball",
                                             recipient="the dog")),
     "Max gave the ball to the dog last week.", "La semaine dernière, Max a donné le ballon au chien.",
     "Letzte Woche hat Max dem Hund den Ball gegeben."),
    (c("past time", time="last year", clause=c("feeling", "past", subject="we", feeling="thirsty")),
     "We were thirsty last year.", "L'année dernière, nous avions soif.", "Letztes Jahr hatten wir Durst."),
    (c("future time", time="tomorrow", clause=c("transitive", "future", subject="they", verb="visit",
                                               object="the library")),
     "They will visit the library tomorrow.", "Demain, ils visiteront la bibliothèque.",
     "Morgen werden sie die Bibliothek besuchen."),
    # Two clauses: the German verb is last
    (c("because", clause=c("intransitive", subject="the boy", verb="laugh"),
       other=c("intransitive", subject="the uncle", verb="arrive")),
     "The boy laughs because the uncle arrives.", "Le garçon rit parce que l'oncle arrive.",
     "Der Junge lacht, weil der Onkel ankommt."),
    (c("because", clause=c("location", subject="we", place="in the house"), other=c("weather", verb="rain")),
     "We are in the house because it rains.", "Nous sommes dans la maison parce qu'il pleut.",
     "Wir sind im Haus, weil es regnet."),
    (c("past because", clause=c("intransitive", "past", subject="the girl", verb="cry"),
       other=c("transitive", "past", subject="the fox", verb="eat", object="the cake")),
     "The girl cried because the fox ate the cake.", "La fille a pleuré parce que le renard a mangé le gâteau.",
     "Das Mädchen hat geweint, weil der Fuchs den Kuchen gegessen hat."),
    (c("when", other=c("temperature", quality="cold"), clause=c("food", subject="I", verb="eat", object="soup")),
     "When it is cold, I eat soup.", "Quand il fait froid, je mange de la soupe.", "Wenn es kalt ist, esse ich Suppe."),
    (c("if", other=c("motion", subject="he", verb="return", place="to the village"),
       clause=c("quality", "future", subject="the queen", quality="happy")),
     "If he returns to the village, the queen will be happy.", "S'il retourne au village, la reine sera heureuse.",
     "Wenn er ins Dorf zurückkehrt, wird die Königin glücklich sein."),
    (c("if", other=c("feeling", subject="she", feeling="hungry"),
       clause=c("transitive", "future", subject="she", verb="eat", object="the egg")),
     "If she is hungry, she will eat the egg.", "Si elle a faim, elle mangera l'œuf.",
     "Wenn sie Hunger hat, wird sie das Ei essen."),
    (c("claim", subject="the witch", verb="say", other=c("transitive", subject="the giant", verb="see",
                                                        object="the tower")),
     "The witch says that the giant sees the tower.", "La sorcière dit que le géant voit la tour.",
     "Die Hexe sagt, dass der Riese den Turm sieht."),
    (c("claim", subject="you", verb="know", other=c("job", subject="he", job="a doctor")), "You know that he is a doctor.",
     "Tu sais qu'il est médecin.", "Du weißt, dass er Arzt ist."),
    (c("claim", subject="I", verb="think", other=c("there is", thing="a dragon", place="in the forest")),
     "I think that there is a dragon in the forest.", "Je pense qu'il y a un dragon dans la forêt.",
     "Ich denke, dass im Wald ein Drache ist."),
    (c("and", clause=c("intransitive", subject="the bird", verb="sing"), other=c("intransitive", subject="the cat",
                                                                               verb="wait")),
     "The bird sings and the cat waits.", "L'oiseau chante et le chat attend.", "Der Vogel singt und die Katze wartet."),
    (c("but", clause=c("quality", subject="the bear", quality="strong"),
       other=c("quality", subject="the mouse", quality="clever")),
     "The bear is strong, but the mouse is clever.", "L'ours est fort, mais la souris est intelligente.",
     "Der Bär ist stark, aber die Maus ist klug."),
    (c("two verbs", clause=c("intransitive", subject="the women", verb="sing"),
       other=c("activity", subject="the women", verb="dance", place="in the park")),
     "The women sing and dance in the park.", "Les femmes chantent et dansent dans le parc.",
     "Die Frauen singen und tanzen im Park."),
    (c("and it", clause=c("transitive", subject="the boy", verb="buy", object="an apple"),
       other=c("pronoun object", subject="the boy", verb="eat", object=ObjectPronoun(np("an apple")))),
     "The boy buys an apple and eats it.", "Le garçon achète une pomme et la mange.",
     "Der Junge kauft einen Apfel und isst ihn."),
    (c("and it", clause=c("transitive", subject="we", verb="find", object="the old books"),
       other=c("pronoun object", subject="we", verb="hide", object=ObjectPronoun(np("the old books")))),
     "We find the old books and hide them.", "Nous trouvons les vieux livres et les cachons.",
     "Wir finden die alten Bücher und verstecken sie."),
    (c("relative subject", subject="the boy", quality="happy",
       other=c("transitive", subject=RelativePronoun(np("the boy")), verb="eat", object="the apple")),
     "The boy who eats the apple is happy.", "Le garçon qui mange la pomme est heureux.",
     "Der Junge, der den Apfel isst, ist glücklich."),
    (c("relative subject", subject="the dogs", quality="fast",
       other=c("motion", subject=RelativePronoun(np("the dogs")), verb="run", place="to the beach")),
     "The dogs that run to the beach are fast.", "Les chiens qui courent à la plage sont rapides.",
     "Die Hunde, die zum Strand rennen, sind schnell."),
    (c("relative object", subject="the cake", quality="too hot",
       other=c("transitive", subject="the girl", verb="prepare", object=RelativePronoun(np("the cake")))),
     "The cake that the girl prepares is too hot.", "Le gâteau que la fille prépare est trop chaud.",
     "Der Kuchen, den das Mädchen zubereitet, ist zu heiß."),
    (c("relative object", subject="the children", quality="funny",
       other=c("transitive", subject="he", verb="help", object=RelativePronoun(np("the children")))),
     "The children that he helps are funny.", "Les enfants qu'il aide sont drôles.", "Die Kinder, denen er hilft, sind lustig."),
    (c("relative object", subject="the letter", quality="long",
       other=c("transitive", "past", subject="Anna", verb="write", object=RelativePronoun(np("the letter")))),
     "The letter that Anna wrote is long.", "La lettre qu'Anna a écrite est longue.",
     "Der Brief, den Anna geschrieben hat, ist lang."),
    (c("relative last", subject="I", verb="help", object="a man",
       other=c("activity", subject=RelativePronoun(np("a man")), verb="work", place="on the bridge")),
     "I help a man who works on the bridge.", "J'aide un homme qui travaille sur le pont.",
     "Ich helfe einem Mann, der auf der Brücke arbeitet."),
]  # fmt: skip


@pytest.mark.parametrize(("derivation", "english", "french", "german"), SENTENCES, ids=[row[1] for row in SENTENCES])
def test_sentences(derivation: Clause, english: str, french: str, german: str) -> None:
    assert text_of(derivation, "en") == english
    assert text_of(derivation, "fr") == french
    assert text_of(derivation, "de") == german


def test_the_sentences_cover_every_construction() -> None:
    used = {rule for derivation, *_ in SENTENCES for rule in rules_in(derivation)}
    moods = {clause.mood for derivation, *_ in SENTENCES for clause in clauses_in(derivation)}
    by_mood = {
        "negation",
        "never",
        "past",
        "past negation",
        "future",
        "modal",
        "modal negation",
        "modal past",
        "like to",
    }
    assert set(CONSTRUCTIONS) - used == by_mood  # these rules differ from a statement only in their mood
    assert {mood.tense for mood in moods} == {"present", "past", "future", "command"}
    assert {mood.polarity for mood in moods} == {"", "not", "never"}
    assert {mood.modal for mood in moods} == {"", "can", "must", "want", "like"}


def clauses_in(derivation: Clause) -> list[Clause]:
    inner = [value for value in derivation.slots.values() if isinstance(value, Clause)]
    return [derivation, *(clause for value in inner for clause in clauses_in(value))]


def rules_in(derivation: Clause) -> list[str]:
    return [clause.rule.name for clause in clauses_in(derivation)]


# ---- Alignment and heads, written manually ---------------------------------------------------------------

# source word - target words; words that are not mentioned are not aligned
ALIGNED = [
    (c("intransitive", "not", subject="the small cat", verb="sleep"), "fr",
     "The-Le small-petit cat-chat does-ne,pas not-ne,pas sleep-dort .-."),
    (c("transitive", subject="the man", verb="eat", object="a red orange"), "fr",
     "The-L' man-homme eats-mange a-une red-rouge orange-orange .-."),
    (c("part", subject="the roof", whole="the castle", quality="old"), "fr",
     "The-Le roof-toit of-du the-du castle-château is-est old-vieux .-."),
    (c("part", subject="the roof", whole="the castle", quality="old"), "de",
     "The-Das roof-Dach of-des the-des castle-Schlosses is-ist old-alt .-."),
    (c("food", subject="I", verb="drink", object="water"), "fr", "I-Je drink-bois water-eau .-."),
    (c("transitive", "past", subject="the girl", verb="eat", object="the egg"), "de",
     "The-Das girl-Mädchen ate-hat,gegessen the-das egg-Ei .-."),
    (c("transitive", "future", subject="the girl", verb="eat", object="the egg"), "fr",
     "The-La girl-fille will-mangera eat-mangera the-l' egg-œuf .-."),
    (c("transitive", "future", subject="the girl", verb="eat", object="the egg"), "de",
     "The-Das girl-Mädchen will-wird eat-essen the-das egg-Ei .-."),
    (c("lacking", "not", subject="Tom", object="a hat"), "de", "Tom-Tom does-keinen not-keinen have-hat hat-Hut .-."),
    (c("giving", subject="Tom", verb="give", object="a ring", recipient="the queen"), "de",
     "Tom-Tom gives-gibt a-einen ring-Ring to-der the-der queen-Königin .-."),
    (c("pronoun object", "past", subject="we", verb="see", object="her"), "fr",
     "We-Nous saw-avons,vue her-l' .-."),
    (c("activity", "like", subject="the cat", verb="sleep", place="in the house"), "de",
     "The-Die cat-Katze likes-gern to-gern sleep-schläft in-im the-im house-Haus .-."),
    (c("motion", subject="he", verb="return", place="to the market"), "de",
     "He-Er returns-kehrt,zurück to-zum the-zum market-Markt .-."),
    (c("question", clause=c("intransitive", subject="he", verb="sleep")), "fr", "Does-Est-ce,qu' he-il sleep-dort ?-?"),
    (c("question", clause=c("intransitive", subject="he", verb="sleep")), "de", "Does-Schläft he-er sleep-Schläft ?-?"),
    (c("comparison", subject="Tom", quality="smaller", other_one="Leo"), "fr",
     "Tom-Tom is-est smaller-plus,petit than-que Leo-Leo .-."),
    (c("comparison", subject="Tom", quality="more famous", other_one="Leo"), "de",
     "Tom-Tom is-ist more-berühmter famous-berühmter than-als Leo-Leo .-."),
    (c("superlative", subject="the fastest dog", place="on the farm"), "fr",
     "The-Le fastest-le,plus,rapide dog-chien is-est on-à the-la farm-ferme .-."),
    (c("couple", subject="the cat and the dog", verb="wait", place="on the bridge"), "de",
     "The-Die cat-Katze and-und the-der dog-Hund wait-warten on-auf the-der bridge-Brücke .-."),
    (c("because", clause=c("intransitive", subject="Tom", verb="laugh"), other=c("weather", verb="rain")), "fr",
     "Tom-Tom laughs-rit because-parce,qu' it-il rains-pleut .-."),
    (c("when", other=c("weather", verb="rain"), clause=c("intransitive", subject="Tom", verb="laugh")), "de",
     "When-Wenn it-es rains-regnet ,-, Tom-Tom laughs-lacht .-."),
    (c("age", subject="Anna", number="six"), "fr", "Anna-Anna is-a six-six years-ans .-."),
    (c("past time", time="last week", clause=c("intransitive", "past", subject="Tom", verb="arrive")), "de",
     "Tom-Tom arrived-ist,angekommen last-Letzte week-Woche .-."),
]  # fmt: skip


@pytest.mark.parametrize(
    ("derivation", "language", "expected"), ALIGNED, ids=[f"{row[1]}: {row[2]}" for row in ALIGNED]
)
def test_alignment(derivation: Clause, language: str, expected: str) -> None:
    pair = WORLD.pair(sentence(WORLD, derivation), language)
    links: list[str] = []
    for place, word in enumerate(pair.source_words):
        others = [pair.target_words[j] for i, j in pair.alignment if i == place]
        links += [f"{word}-{','.join(others)}"] if others else []
    assert " ".join(links) == expected


# word<head for each word; the root has no head
HEADS = [
    (c("transitive", "not", subject="the small cat", verb="see", object="a tree"), "en",
     "The<cat small<cat cat<see does<see not<see see a<tree tree<see .<see"),
    (c("transitive", "past", subject="the cat", verb="see", object="a tree"), "de",
     "Die<Katze Katze<gesehen hat<gesehen einen<Baum Baum<gesehen gesehen .<gesehen"),
    (c("motion", subject="he", verb="return", place="to the market"), "de",
     "Er<kehrt kehrt zum<Markt Markt<kehrt zurück<kehrt .<kehrt"),
    (c("pronoun object", "want not", subject="she", verb="meet", object="you"), "fr",
     "Elle<rencontrer ne<rencontrer veut<rencontrer pas<rencontrer te<rencontrer rencontrer .<rencontrer"),
    (c("part", subject="the door", whole="the church", quality="red"), "fr",
     "La<porte porte<est de<église l'<église église<porte est rouge<est .<est"),
    (c("because", clause=c("intransitive", subject="Tom", verb="laugh"), other=c("weather", verb="rain")), "de",
     "Tom<lacht lacht ,<lacht weil<regnet es<regnet regnet<lacht .<lacht"),
    (c("relative object", subject="the cake", quality="good",
       other=c("transitive", subject="she", verb="eat", object=RelativePronoun(np("the cake")))), "en",
     "The<cake cake<is that<eats she<eats eats<cake is good<is .<is"),
    (c("couple", subject="the cat and the dog", verb="wait", place="on the bridge"), "en",
     "The<cat cat<wait and<dog the<dog dog<cat wait on<bridge the<bridge bridge<wait .<wait"),
    (c("question", clause=c("intransitive", subject="he", verb="sleep")), "en", "Does<sleep he<sleep sleep ?<sleep"),
    (c("age", subject="Anna", number="six"), "en", "Anna<is is six<years years<old old<is .<is"),
]  # fmt: skip


@pytest.mark.parametrize(("derivation", "language", "expected"), HEADS, ids=[row[2] for row in HEADS])
def test_heads(derivation: Clause, language: str, expected: str) -> None:
    said_sentence = WORLD.say(sentence(WORLD, derivation), language)
    words, heads = said_sentence.words, said_sentence.layout.heads
    shown = [word if head < 0 else f"{word}<{words[head]}" for word, head in zip(words, heads, strict=True)]
    assert " ".join(shown) == expected


# ---- Properties of random sentences ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def corpus() -> dict[tuple[str, str], list[AlignedPair]]:
    sizes = {"train": 15_000, "valid": 1500, "test": 1500, "unseen": 1500}
    return {(d, split): tinyworld(d, split, sizes[split], seed=3) for d in DIRECTIONS for split in SPLITS}


def everything(corpus: dict[tuple[str, str], list[AlignedPair]]) -> list[AlignedPair]:
    return [pair for pairs in corpus.values() for pair in pairs]


def test_pairs_are_well_formed(corpus: dict[tuple[str, str], list[AlignedPair]]) -> None:
    for pair in everything(corpus):
        check_side(pair.source, pair.source_words, pair.source_heads)
        check_side(pair.target, pair.target_words, pair.target_heads)
        assert list(pair.alignment) == sorted(set(pair.alignment))
        assert all(i < len(pair.source_words) and j < len(pair.target_words) for i, j in pair.alignment)
        assert (len(pair.source_words) - 1, len(pair.target_words) - 1) in pair.alignment  # the final punctuation marks
        assert pair.construction in CONSTRUCTIONS


def check_side(text: str, words: tuple[str, ...], heads: tuple[int, ...]) -> None:
    assert split_text(text) == list(words)
    assert text[0].isupper()
    assert text[-1] in ".?!"
    assert len(heads) == len(words)
    assert heads.count(-1) == 1
    for index in range(len(words)):  # every word reaches the root: there is no cycle
        steps = 0
        while heads[index] >= 0:
            index, steps = heads[index], steps + 1
            assert steps <= len(words)


def split_text(text: str) -> list[str]:
    """Split at spaces, after apostrophes and around punctuation. est-ce is one word."""
    return re.findall(r"[^\s.,?!']+'?|[.,?!]", text)


def test_every_content_word_is_aligned(corpus: dict[tuple[str, str], list[AlignedPair]]) -> None:
    """Nouns, verbs and adjectives always have a counterpart. Only function words may have none."""
    unaligned: Counter[str] = Counter()
    for pair in everything(corpus):
        linked = {i for i, _ in pair.alignment}
        unaligned.update(word.lower() for index, word in enumerate(pair.source_words) if index not in linked)
    assert set(unaligned) <= {"a", "an", "old", "there", "of", "to", "the", "it", ","}


@pytest.mark.parametrize("draws", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_no_source_has_two_targets(draws: int) -> None:
    """Two derivations with the same English text must have the same French and German text."""
    chooser = WORLD.chooser(11)
    known: dict[str, tuple[str, str]] = {}
    for _ in range(draws):
        drawn = chooser.sentence()
        english = WORLD.say(drawn, "en").text
        targets = (WORLD.say(drawn, "fr").text, WORLD.say(drawn, "de").text)
        assert known.setdefault(english, targets) == targets
    assert len(known) >= 0.95 * draws  # few draws repeat an earlier one


def test_german_rules_have_slots_for_all_their_moods() -> None:
    for rule in WORLD.clauses:
        if rule.moods & {"not", "never", "like", "always_not"}:
            assert "{not}" in rule.german or "{kein}" in rule.german, rule.name
        assert "{end}" in rule.german, rule.name


def test_splits_are_disjoint(corpus: dict[tuple[str, str], list[AlignedPair]]) -> None:
    for direction in DIRECTIONS:
        sources = {split: {pair.source for pair in corpus[direction, split]} for split in SPLITS}
        for one in SPLITS:
            assert len(sources[one]) == len(corpus[direction, one])
            for other in SPLITS:
                assert one == other or not sources[one] & sources[other]


@pytest.mark.slow
def test_unseen_words_are_known_words(corpus: dict[tuple[str, str], list[AlignedPair]]) -> None:
    for direction in DIRECTIONS:
        train, unseen = tinyworld(direction, "train", 40_000, seed=1), corpus[direction, "unseen"]
        source = {word.lower() for pair in train for word in pair.source_words}
        assert {word.lower() for pair in unseen for word in pair.source_words} <= source
        # A rare target form of a known word ("leichtes") may be missing in a sample of the training data.
        target = {word.lower() for pair in train for word in pair.target_words}
        words = [word.lower() for pair in unseen for word in pair.target_words]
        assert sum(word not in target for word in words) < 0.001 * len(words)


@pytest.mark.parametrize("split", SPLITS)
def test_withheld_combinations_are_only_in_unseen(split: str) -> None:
    sources = {pair.source for pair in tinyworld("en-fr", split, 800, seed=5)}
    chooser = WORLD.chooser(5)  # the same sentences again, with their derivations
    while sources:
        drawn = chooser.sentence()
        english = WORLD.say(drawn, "en").text
        if english in sources:
            sources.remove(english)
            assert any(is_withheld(*pair) for pair in combinations(drawn)) == (split == "unseen")


def test_withheld_combinations_are_about_one_in_twenty() -> None:
    adjectives, nouns = WORLD.lexicon.adjectives.values(), WORLD.lexicon.nouns.values()
    fitting = [(a.name, n.name) for a in adjectives for n in nouns if not a.kinds.isdisjoint(n.kinds)]
    assert 0.03 < sum(is_withheld(*pair) for pair in fitting) / len(fitting) < 0.07


def test_combinations_of_a_sentence() -> None:
    eats = c("transitive", subject="the small cat", verb="eat", object="a ripe pear")
    assert sorted(combinations(eats)) == [("eat", "pear"), ("ripe", "pear"), ("small", "cat")]
    assert combinations(c("quality", subject="the soup", quality="too hot")) == [("hot", "soup")]
    inner = c("transitive", subject="she", verb="eat", object=RelativePronoun(np("the cake")))
    relative = c("relative object", subject="the cake", quality="good", other=inner)
    assert sorted(combinations(relative)) == [("eat", "cake"), ("good", "cake")]


def test_the_same_arguments_give_the_same_pairs_in_another_process() -> None:
    program = "from cutaway.data.builtin.tinyworld import tinyworld; print(tinyworld('en-de', 'test', 30, 9))"
    runs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment(s))
        for s in ("0", "1")
    ]
    assert runs[0].stdout == runs[1].stdout == f"{tinyworld('en-de', 'test', 30, 9)}\n"


def environment(hash_seed: str) -> dict[str, str]:
    return {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUTF8": "1"}


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(DIRECTIONS), st.sampled_from(SPLITS), st.integers(0, 40), st.integers(0, 10**6))
def test_a_longer_corpus_begins_with_the_shorter(direction: str, split: str, size: int, seed: int) -> None:
    pairs = tinyworld(direction, split, size, seed)
    assert len(pairs) == size
    assert tinyworld(direction, split, size + 5, seed)[:size] == pairs


def test_both_directions_share_their_sources() -> None:
    french, german = (tinyworld(direction, "valid", 200, seed=2) for direction in DIRECTIONS)
    assert [pair.source for pair in french] == [pair.source for pair in german]
    assert [pair.source_heads for pair in french] == [pair.source_heads for pair in german]


def test_size_of_the_world(corpus: dict[tuple[str, str], list[AlignedPair]]) -> None:
    train = corpus["en-fr", "train"]
    lengths = [sum(word not in ".,?!" for word in pair.source_words) for pair in train]
    assert 7.5 <= sum(lengths) / len(lengths) <= 9
    assert sum(3 <= length <= 16 for length in lengths) > 0.98 * len(lengths)
    assert len({word.lower() for pair in train for word in pair.source_words}) >= 500
    assert len({pair.construction for pair in train}) >= 55


@pytest.mark.slow
def test_words_are_frequent_enough() -> None:
    train = tinyworld("en-fr", "train", 40_000, seed=4)
    counts = Counter(word.lower() for pair in train for word in set(pair.source_words))
    assert min(counts.values()) >= 7  # expected: one in four thousand sentences, with some tolerance
    targets = Counter(word.lower() for pair in train for word in set(pair.target_words))
    rare = sum(count for count in targets.values() if count < 10)
    assert rare < 0.01 * len(train)  # fewer than one in a hundred sentences has a rare inflected form


def test_no_kind_has_the_name_of_a_noun() -> None:
    """The name of a noun is also a kind, so a shared name ("water") would mix the two."""
    nouns = WORLD.lexicon.nouns
    for noun in nouns.values():
        assert not (noun.kinds - {noun.name}) & set(nouns)


def test_fast_enough() -> None:
    """The time is compared with simple arithmetic, so that a busy or slow machine does not matter."""
    tinyworld("en-fr", "train", 2000, seed=0)
    start = time.process_time()
    for number in range(4_000_000):
        number + number
    arithmetic = time.process_time() - start
    start = time.process_time()
    tinyworld("en-fr", "train", 5000, seed=8)
    assert time.process_time() - start < 10 * arithmetic


def test_wrong_names_are_refused() -> None:
    with pytest.raises(ValueError, match="no direction 'en-es'.*Allowed: en-fr, en-de"):
        tinyworld("en-es")
    with pytest.raises(ValueError, match="no split 'training'.*Did you mean 'train'.*train, valid, test, unseen"):
        tinyworld("en-fr", "training")
    with pytest.raises(ValueError, match="no rule 'flying'. Choose one of intransitive, activity"):
        derive(WORLD, "flying")
    with pytest.raises(ValueError, match="no noun 'unicorn'. Add a row"):
        c("intransitive", subject="the unicorn", verb="run")


def test_the_page_about_tinyworld_runs() -> None:
    page = Path(__file__).parents[3] / "docs" / "tinyworld.md"
    namespace: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 4
    for block in blocks:
        exec(block, namespace)
